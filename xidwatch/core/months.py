"""Month names as journalctl and dmesg print them: strftime's `%b` in the locales that logs arrive in."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

_ENGLISH = dict(
    zip(("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), range(1, 13), strict=True)
)
_NAMES = """
jan,feb,mar,apr,may,jun,jul,aug,sep,oct,nov,dec;january,february,march,april,may,june,july,august,
september,october,november,december;jan,feb,mär,apr,mai,jun,jul,aug,sep,okt,nov,dez;januar,februar,märz,
april,mai,juni,juli,august,september,oktober,november,dezember;janv,févr,mars,avril,mai,juin,juil,août,
sept,oct,nov,déc;janvier,février,mars,avril,mai,juin,juillet,août,septembre,octobre,novembre,décembre;
ene,feb,mar,abr,may,jun,jul,ago,sep,oct,nov,dic;enero,febrero,marzo,abril,mayo,junio,julio,agosto,
septiembre,octubre,noviembre,diciembre;gen,feb,mar,apr,mag,giu,lug,ago,set,ott,nov,dic;gennaio,febbraio,
marzo,aprile,maggio,giugno,luglio,agosto,settembre,ottobre,novembre,dicembre;jan,fev,mar,abr,mai,jun,jul,
ago,set,out,nov,dez;janeiro,fevereiro,março,abril,maio,junho,julho,agosto,setembro,outubro,novembro,
dezembro;jan,feb,mrt,apr,mei,jun,jul,aug,sep,okt,nov,dec;januari,februari,maart,april,mei,juni,juli,
augustus,september,oktober,november,december;янв,фев,мар,апр,мая,июн,июл,авг,сен,окт,ноя,дек;янв,фев,мар,
апр,май,июн,июл,авг,сен,окт,ноя,дек;января,февраля,марта,апреля,мая,июня,июля,августа,сентября,октября,
ноября,декабря;январь,февраль,март,апрель,май,июнь,июль,август,сентябрь,октябрь,ноябрь,декабрь;sty,lut,
mar,kwi,maj,cze,lip,sie,wrz,paź,lis,gru;stycznia,lutego,marca,kwietnia,maja,czerwca,lipca,sierpnia,
września,października,listopada,grudnia;styczeń,luty,marzec,kwiecień,maj,czerwiec,lipiec,sierpień,
wrzesień,październik,listopad,grudzień;led,úno,bře,dub,kvě,čen,čec,srp,zář,říj,lis,pro;ledna,února,
března,dubna,května,června,července,srpna,září,října,listopadu,prosince;leden,únor,březen,duben,květen,
červen,červenec,srpen,září,říjen,listopad,prosinec;січ,лют,бер,кві,тра,чер,лип,сер,вер,жов,лис,гру;січня,
лютого,березня,квітня,травня,червня,липня,серпня,вересня,жовтня,листопада,грудня;січень,лютий,березень,
квітень,травень,червень,липень,серпень,вересень,жовтень,листопад,грудень;oca,şub,mar,nis,may,haz,tem,ağu,
eyl,eki,kas,ara;ocak,şubat,mart,nisan,mayıs,haziran,temmuz,ağustos,eylül,ekim,kasım,aralık;jan,feb,mar,
apr,maj,jun,jul,aug,sep,okt,nov,dec;januari,februari,mars,april,maj,juni,juli,augusti,september,oktober,
november,december;jan,feb,mars,april,mai,juni,juli,aug,sep,okt,nov,des;januar,februar,mars,april,mai,
juni,juli,august,september,oktober,november,desember;januar,februar,marts,april,maj,juni,juli,august,
september,oktober,november,december;tammi,helmi,maalis,huhti,touko,kesä,heinä,elo,syys,loka,marras,joulu;
tammikuu,helmikuu,maaliskuu,huhtikuu,toukokuu,kesäkuu,heinäkuu,elokuu,syyskuu,lokakuu,marraskuu,joulukuu;
jan,febr,márc,ápr,máj,jún,júl,aug,szept,okt,nov,dec;január,február,március,április,május,június,július,
augusztus,szeptember,október,november,december;ian,feb,mar,apr,mai,iun,iul,aug,sep,oct,nov,dec;ianuarie,
februarie,martie,aprilie,mai,iunie,iulie,august,septembrie,octombrie,noiembrie,decembrie;ιαν,φεβ,μαρ,απρ,
μαΐ,ιουν,ιουλ,αυγ,σεπ,οκτ,νοε,δεκ;ιαν,φεβ,μάρ,απρ,μάι,ιούν,ιούλ,αύγ,σεπ,οκτ,νοέ,δεκ;ιανουαρίου,
φεβρουαρίου,μαρτίου,απριλίου,μαΐου,ιουνίου,ιουλίου,αυγούστου,σεπτεμβρίου,οκτωβρίου,νοεμβρίου,
δεκεμβρίου;ιανουάριοσ,φεβρουάριοσ,μάρτιοσ,απρίλιοσ,μάιοσ,ιούνιοσ,ιούλιοσ,αύγουστοσ,σεπτέμβριοσ,οκτώβριοσ,
νοέμβριοσ,δεκέμβριοσ;яну,фев,мар,апр,май,юни,юли,авг,сеп,окт,ное,дек;януари,февруари,март,април,май,юни,
юли,август,септември,октомври,ноември,декември;sij,velj,ožu,tra,svi,lip,srp,kol,ruj,lis,stu,pro;siječnja,
veljače,ožujka,travnja,svibnja,lipnja,srpnja,kolovoza,rujna,listopada,studenoga,prosinca;siječanj,
veljača,ožujak,travanj,svibanj,lipanj,srpanj,kolovoz,rujan,listopad,studeni,prosinac;јан,феб,мар,апр,мај,
јун,јул,авг,сеп,окт,нов,дец;јануар,фебруар,март,април,мај,јун,јул,август,септембар,октобар,новембар,
децембар;jan,feb,mar,apr,maj,jun,jul,avg,sep,okt,nov,dec;januar,februar,mart,april,maj,jun,jul,avgust,
septembar,oktobar,novembar,decembar;jan,feb,mar,apr,máj,jún,júl,aug,sep,okt,nov,dec;január,február,marec,
apríl,máj,jún,júl,august,september,október,november,december;januar,februar,marec,april,maj,junij,julij,
avgust,september,oktober,november,december;de gen,de febr,de març,d’abr,de maig,de juny,de jul,d’ag,
de set,d’oct,de nov,de des;gen,febr,març,abr,maig,juny,jul,ag,set,oct,nov,des;de gener,de febrer,de març,
d’abril,de maig,de juny,de juliol,d’agost,de setembre,d’octubre,de novembre,de desembre;gener,febrer,
març,abril,maig,juny,juliol,agost,setembre,octubre,novembre,desembre;saus,vas,kov,bal,geg,birž,liep,rugp,
rugs,spal,lapkr,gruod;sausio,vasario,kovo,balandžio,gegužės,birželio,liepos,rugpjūčio,rugsėjo,spalio,
lapkričio,gruodžio;sausis,vasaris,kovas,balandis,gegužė,birželis,liepa,rugpjūtis,rugsėjis,spalis,
lapkritis,gruodis;jan,feb,mar,apr,mai,jūn,jūl,aug,sep,okt,nov,dec;janvāris,februāris,marts,aprīlis,maijs,
jūnijs,jūlijs,augusts,septembris,oktobris,novembris,decembris;jaan,veebr,märts,apr,mai,juuni,juuli,aug,
sept,okt,nov,dets;jaanuar,veebruar,märts,aprill,mai,juuni,juuli,august,september,oktoober,november,
detsember;thg 1,thg 2,thg 3,thg 4,thg 5,thg 6,thg 7,thg 8,thg 9,thg 10,thg 11,thg 12;tháng 1,tháng 2,
tháng 3,tháng 4,tháng 5,tháng 6,tháng 7,tháng 8,tháng 9,tháng 10,tháng 11,tháng 12;มค,กพ,มีค,เมย,พค,มิย,
กค,สค,กย,ตค,พย,ธค;มกราคม,กุมภาพันธ์,มีนาคม,เมษายน,พฤษภาคม,มิถุนายน,กรกฎาคม,สิงหาคม,กันยายน,ตุลาคม,
พฤศจิกายน,ธันวาคม;jan,feb,mar,apr,mei,jun,jul,agu,sep,okt,nov,des;januari,februari,maret,april,mei,juni,
juli,agustus,september,oktober,november,desember;jan,feb,mac,apr,mei,jun,jul,ogos,sep,okt,nov,dis;
januari,februari,mac,april,mei,jun,julai,ogos,september,oktober,november,disember;ينا,فبر,مار,أبر,ماي,
يون,يول,أغس,سبت,أكت,نوف,ديس;يناير,فبراير,مارس,أبريل,مايو,يونيو,يوليو,أغسطس,سبتمبر,أكتوبر,نوفمبر,ديسمبر;
ינו,פבר,מרץ,אפר,מאי,יונ,יול,אוג,ספט,אוק,נוב,דצמ;ינואר,פברואר,מרץ,אפריל,מאי,יוני,יולי,אוגוסט,ספטמבר,
אוקטובר,נובמבר,דצמבר;जन॰,फ़र॰,मार्च,अप्रैल,मई,जून,जुल॰,अग॰,सित॰,अक्तू॰,नव॰,दिस॰;जनवरी,फ़रवरी,मार्च,
अप्रैल,मई,जून,जुलाई,अगस्त,सितंबर,अक्तूबर,नवंबर,दिसंबर;ژانویه,فوریه,مارس,آوریل,مه,ژوئن,ژوئیه,اوت,سپتامبر,
اكتبر,نوامبر,دسامبر;jän,feb,mär,apr,mai,jun,jul,aug,sep,okt,nov,dez;jänner,februar,märz,april,mai,juni,
juli,august,september,oktober,november,dezember;jan,fév,mar,avr,mai,jun,jui,aoû,sep,oct,nov,déc;xan,feb,
mar,abr,mai,xuñ,xul,ago,set,out,nov,dec;xaneiro,febreiro,marzo,abril,maio,xuño,xullo,agosto,setembro,
outubro,novembro,decembro;urt,ots,mar,api,mai,eka,uzt,abu,ira,urr,aza,abe;urtarrila,otsaila,martxoa,
apirila,maiatza,ekaina,uztaila,abuztua,iraila,urria,azaroa,abendua;ean,feabh,márta,aib,beal,meith,iúil,
lún,mfómh,dfómh,samh,noll;eanáir,feabhra,márta,aibreán,bealtaine,meitheamh,iúil,lúnasa,meán fómhair,
deireadh fómhair,samhain,nollaig;сту,лют,сак,кра,мая,чэр,ліп,жні,вер,кас,ліс,сне;сту,лют,сак,кра,май,чэр,
ліп,жні,вер,кас,ліс,сне;студзеня,лютага,сакавіка,красавіка,мая,чэрвеня,ліпеня,жніўня,верасня,кастрычніка,
лістапада,снежня;студзень,люты,сакавік,красавік,май,чэрвень,ліпень,жнівень,верасень,кастрычнік,лістапад,
снежань;қаң,ақп,нау,сәу,мам,мау,шіл,там,қыр,қаз,қар,жел;қаңтар,ақпан,наурыз,сәуір,мамыр,маусым,шілде,
тамыз,қыркүйек,қазан,қараша,желтоқсан;yan,fev,mar,apr,may,i̇yn,i̇yl,avq,sen,okt,noy,dek;yanvar,fevral,
mart,aprel,may,iyun,iyul,avqust,sentyabr,oktyabr,noyabr,dekabr;qun,nah,cig,agd,cax,qas,qad,leq,way,dit,
xim,kax;qunxa garablu,naharsi kudo,ciggilta kudo,agda baxis,caxah alsa,qasa dirri,qado dirri,leqeeni,
waysu,diteli,ximoli,kaxxa garablu;qunxa garablu,naharsi kudo,ciggilta kudo,agda baxis,caxah alsa,
qasa dirri,qado dirri,liiqen,waysu,diteli,ximoli,kaxxa garablu;ажь,жәаб,хәажә,мш,лаҵ,рашә,ԥхынгә,нанҳә,
цәыб,жьҭ,абҵ,ԥхынҷ;ажьырныҳәа,жәабран,хәажәкыра,мшаԥы,лаҵара,рашәара,ԥхынгәы,нанҳәа,цәыббра,жьҭаара,
абҵара,ԥхынҷкәын;jan,feb,mrt,apr,mei,jun,jul,aug,sep,okt,nov,des;januarie,februarie,maart,april,mei,
junie,julie,augustus,september,oktober,november,desember;pet,kup,uya,tay,keg,teg,kun,yag,dait,ipam,shin,
sak;petsatin,kupitin,uyaitin,tayutin,kegketin,tegmatin,kuntutin,yagkujutin,daiktatin,ipamtatin,shinutin,
sakamtin;s-ɔ,k-ɔ,e-ɔ,e-o,e-k,o-a,a-k,d-ɔ,f-ɛ,ɔ-a,ɔ-o,m-ɔ;sanda-ɔpɛpɔn,kwakwar-ɔgyefuo,ebɔw-ɔbenem,
ebɔbira-oforisuo,esusow aketseaba-kɔtɔnimba,obirade-ayɛwohomumu,ayɛwoho-kitawonsa,difuu-ɔsandaa,
fankwa-ɛbɔ,ɔbɛsɛ-ahinime,ɔberɛfɛw-obubuo,mumu-ɔpɛnimba;ጃንዩ,ፌብሩ,ማርች,ኤፕረ,ሜይ,ጁን,ጁላይ,ኦገስ,ሴፕቴ,ኦክተ,ኖቬም,ዲሴም;
ጃንዩወሪ,ፌብሩወሪ,ማርች,ኤፕሪል,ሜይ,ጁን,ጁላይ,ኦገስት,ሴፕቴምበር,ኦክቶበር,ኖቬምበር,ዲሴምበር;chi,feb,mar,abr,may,chn,chl,ago,set,oct,nov,
avi;chinero,febrero,marzo,abril,mayo,chunyo,chuliol,agosto,setiembre,octubre,noviembre,aviento;जनवरी,
फरवरी,मार्च,अप्रैल,मई,जून,जुलाई,अगस्त,सितंबर,अक्टूबर,नवंबर,दिसंबर;جانفي,فيفري,مارس,أفريل,ماي,جوان,جويلية,
أوت,سبتمبر,أكتوبر,نوفمبر,ديسمبر;كانون الثاني,شباط,آذار,نيسان,أيار,حزيران,تموز,آب,أيلول,تشرين الأول,
تشرين الثاني,كانون الأول;يناير,فبراير,مارس,أبريل,ماي,يونيو,يوليوز,غشت,شتنبر,أكتوبر,نونبر,دجنبر;জানু,
ফেব্ৰু,মাৰ্চ,এপ্ৰিল,মে,জুন,জুলাই,আগ,সেপ্ট,অক্টো,নভে,ডিসে;জানুৱাৰী,ফেব্ৰুৱাৰী,মাৰ্চ,এপ্ৰিল,মে,জুন,জুলাই,
আগষ্ট,ছেপ্তেম্বৰ,অক্টোবৰ,নৱেম্বৰ,ডিচেম্বৰ;xin,feb,mar,abr,may,xun,xnt,ago,set,och,pay,avi;de xineru,
de febreru,de marzu,d’abril,de mayu,de xunu,de xunetu,d’agostu,de setiembre,d’ochobre,de payares,
d’avientu;xineru,febreru,marzu,abril,mayu,xunu,xunetu,agostu,setiembre,ochobre,payares,avientu;ini,phi,
mar,awr,may,jun,jul,awu,sit,ukt,nuw,ris;inïru,phiwriru,marsu,awrila,mayu,junyu,julyu,awustu,sitimri,
uktuwri,nuwimri,risimri;ژانویه,فوریه,مارس,آوریل,مئی,ژوئن,جولای,آقۇست,سپتامبر,اوْکتوْبر,نوْوامبر,دسامبر;
stu,lut,sak,kra,maj,čer,lip,žni,vie,kas,lis,śni;studzienia,lutaha,sakavika,krasavika,maja,červienia,
lipienia,žniŭnia,vieraśnia,kastryčnika,listapada,śniežnia;studzień,luty,sakavik,krasavik,maj,červień,
lipień,žnivień,vierasień,kastryčnik,listapad,śniežań;jan,feb,mac,epr,mei,jun,jul,oga,sep,okt,nov,dis;
januari,februari,machi,epreo,mei,juni,julai,ogasti,septemba,oktoba,novemba,disemba;जनवरी,फरवरी,मार्च,
अप्रैल,मई,जून,जुलाई,अगस्त,सितम्बर,अक्टूबर,नवम्बर,दिसम्बर;jan,feb,maj,epr,mei,jun,jul,ogs,sep,okt,nov,dis;
jenuware,febwari,maj,epril,mei,jun,julae,ogis,septemba,oktoba,novemba,disemba;জানু,ফেব,মার্চ,এপ্রিল,মে,
জুন,জুলাই,আগস্ট,সেপ্টেম্বর,অক্টোবর,নভেম্বর,ডিসেম্বর;জানুয়ারী,ফেব্রুয়ারী,মার্চ,এপ্রিল,মে,জুন,জুলাই,
আগস্ট,সেপ্টেম্বর,অক্টোবর,নভেম্বর,ডিসেম্বর;ཟླ་༡,ཟླ་༢,ཟླ་༣,ཟླ་༤,ཟླ་༥,ཟླ་༦,ཟླ་༧,ཟླ་༨,ཟླ་༩,ཟླ་༡༠,ཟླ་༡༡,ཟླ་༡༢;
ཟླ་བ་དང་པ་,ཟླ་བ་གཉིས་པ་,ཟླ་བ་གསུམ་པ་,ཟླ་བ་བཞི་པ་,ཟླ་བ་ལྔ་ཕ་,ཟླ་བ་དྲུག་པ་,ཟླ་བ་བདུནཔ་,ཟླ་བ་བརྒྱད་པ་,
ཟླ་བ་དགུ་པ་,ཟླ་བ་བཅུ་པ་,ཟླ་བ་བཅུ་གཅིག་པ་,ཟླ་བ་བཅུ་གཉིས་པ་;gen,cʼhw,meu,ebr,mae,mezh,gou,eos,gwe,her,du,
ker;genver,cʼhwevrer,meurzh,ebrel,mae,mezheven,gouere,eost,gwengolo,here,du,kerzu;जानुवारी,फेब्रुवारी,
मार्स,एप्रिल,मे,जुन,जुलाइ,आगस्थ,सेबथेज्ब़र,अखथबर,नबेज्ब़र,दिसेज्ब़र;जानुवारी,फेब्रुवारी,मार्स,एफ्रिल,मे,
जुन,जुलाइ,आगस्थ,सेबथेज्ब़र,अखथबर,नबेज्ब़र,दिसेज्ब़र;januar,februar,mart,april,maj,juni,juli,august,
septembar,oktobar,novembar,decembar;ልደት,ካብኽ,ክብላ,ፋጅኺ,ክቢቅ,ም/ት,ኰር,ማርያ,ያኸኒ,መተሉ,ም/ም,ተሕሳ;ልደትሪ,ካብኽብቲ,ክብላ,ፋጅኺሪ,
ክቢቅሪ,ምኪኤል ትጓ̅ኒሪ,ኰርኩ,ማርያም ትሪ,ያኸኒ መሳቅለሪ,መተሉ,ምኪኤል መሽወሪ,ተሕሳስሪ;ᎤᏃ,ᎧᎦ,ᎠᏅ,ᎧᏬ,ᎠᏂ,ᏕᎭ,ᎫᏰ,ᎦᎶ,ᏚᎵ,ᏚᏂ,ᏅᏓ,ᎥᏍ;ᎤᏃᎸᏔᏅ,ᎧᎦᎵ,
ᎠᏅᏱ,ᎧᏬᏂ,ᎠᏂᏍᎬᏘ,ᏕᎭᎷᏱ,ᎫᏰᏉᏂ,ᎦᎶᏂ,ᏚᎵᏍᏗ,ᏚᏂᏅᏗ,ᏅᏓᏕᏆ,ᎥᏍᎩᏱ;کا٢,شوب,ئاز,نیس,ئای,حوز,تەم,ئاب,ئەی,تش١,تش٢,کا١;
کانونی دووەم,شوبات,ئازار,نیسان,ئایار,حوزەیران,تەموز,ئاب,ئەیلوول,تشرینی یەکەم,تشرینی دووەم,کانونی یەکەم;
一月,二月,三月,四月,五月,六月,七月,八月,九月,十月,十一月,十二月;yan,fev,mar,apr,may,i̇yn,i̇yl,avg,sen,okt,noy,dek;yanvar,fevral,
mart,aprel,mayıs,i̇yun,i̇yul,avgust,sentâbr,oktâbr,noyabr,dekabr;stë,gro,str,łżë,maj,cze,lëp,zél,séw,ruj,
lës,gòd;stë,gro,str,łżë,môj,cze,lëp,zél,séw,ruj,lës,gòd;stëcznika,gromicznika,strëmiannika,łżëkwiata,
maja,czerwińca,lëpińca,zélnika,séwnika,rujana,lëstopadnika,gòdnika;stëcznik,gromicznik,strëmiannik,
łżëkwiat,môj,czerwińc,lëpińc,zélnik,séwnik,rujan,lëstopadnik,gòdnik;kăr,nar,puš,aka,şu,şĕr,ută,şur,avă,
jup,cük,raš;kărlac,narăs,puš,aka,şu,şĕrtme,ută,şurla,avăn,jupa,cük,raštav;ion,chw,maw,ebr,mai,meh,gor,
aws,med,hyd,tach,rha;ionawr,chwefror,mawrth,ebrill,mai,mehefin,gorffennaf,awst,medi,hydref,tachwedd,
rhagfyr;जनवरी,फरवरी,मार्च,एप्रैल,मेई,जून,जूलै,अगस्त,सितंबर,अक्तूबर,नवंबर,दिसंबर;jan,feb,měr,apr,maj,jun,
jul,awg,sep,okt,now,dec;januara,februara,měrca,apryla,maja,junija,julija,awgusta,septembra,oktobra,
nowembra,decembra;januar,februar,měrc,apryl,maj,junij,julij,awgust,september,oktober,nowember,december;
ޖެނުއަރީ,ފެބްރުއަރީ,މާރޗް,އެޕްރީލް,މެއި,ޖޫން,ޖުލައި,އޮގަސްޓް,ސެޕްޓެންބަރ,އޮކްޓޫބަރ,ނޮވެންބަރ,ޑިސެންބަރ;
jan,feb,mar,apr,maj,jun,jul,aŭg,sep,okt,nov,dec;januaro,februaro,marto,aprilo,majo,junio,julio,aŭgusto,
septembro,oktobro,novembro,decembro;ene,feb,mar,abr,may,jun,jul,ago,set,oct,nov,dic;enero,febrero,marzo,
abril,mayo,junio,julio,agosto,setiembre,octubre,noviembre,diciembre;sii,col,mbo,see,duu,kor,mor,juk,slt,
yar,jol,bow;siilo,colte,mbooy,seeɗto,duujal,korse,morso,juko,siilto,yarkomaa,jolal,bowte;ene,peb,mar,abr,
may,hun,hul,ago,set,okt,nob,dis;enero,pebrero,marso,abril,mayo,hunyo,hulyo,agosto,setyembre,oktubre,
nobyembre,disyembre;jan,feb,mar,apr,mai,jun,jul,aug,sep,okt,nov,des;januar,februar,mars,apríl,mai,juni,
juli,august,september,oktober,november,desember;zen,fev,mar,avr,mai,jug,lui,avo,set,otu,nov,dic;zenâr,
fevrâr,març,avrîl,mai,jugn,lui,avost,setembar,otubar,novembar,dicembar;jan,feb,moz,apr,mai,jun,jul,aug,
sep,okt,now,dez;jaunuwoa,februwoa,moaz,aprell,mai,juni,juli,august,septamba,oktoba,nowamba,dezamba;jan,
feb,mrt,apr,mai,jun,jul,aug,sep,okt,nov,des;jannewaris,febrewaris,maart,april,maaie,juny,july,augustus,
septimber,oktober,novimber,desimber;faoi,gearr,màrt,gibl,cèit,ògmh,iuch,lùna,sult,dàmh,samh,dùbh;
dhen fhaoilleach,dhen ghearran,dhen mhàrt,dhen ghiblean,dhen chèitean,dhen ògmhios,dhen iuchar,
dhen lùnastal,dhen t-sultain,dhen dàmhair,dhen t-samhain,dhen dùbhlachd;am faoilleach,an gearran,am màrt,
an giblean,an cèitean,an t-ògmhios,an t-iuchar,an lùnastal,an t-sultain,an dàmhair,an t-samhain,
an dùbhlachd;ጠሐረ,ከተተ,መገበ,አኀዘ,ግንባ,ሠንየ,ሐመለ,ነሐሰ,ከረመ,ጠቀመ,ኀደረ,ኀሠሠ;ጠሐረ,ከተተ,መገበ,አኀዘ,ግንባት,ሠንየ,ሐመለ,ነሐሰ,ከረመ,ጠቀመ,
ኀደረ,ኀሠሠ;ጃንዩወሪ,ፌብሩወሪ,ማርች,ኤፕረል,ሜይ,ጁን,ጁላይ,ኦገስት,ሴፕቴምበር,ኦክተውበር,ኖቬምበር,ዲሴምበር;જાન્યુ,ફેબ્રુ,માર્ચ,એપ્રિલ,મે,જૂન,
જુલાઈ,ઑગસ્ટ,સપ્ટે,ઑક્ટો,નવે,ડિસે;જાન્યુઆરી,ફેબ્રુઆરી,માર્ચ,એપ્રિલ,મે,જૂન,જુલાઈ,ઑગસ્ટ,સપ્ટેમ્બર,ઑક્ટોબર,
નવેમ્બર,ડિસેમ્બર;j-guer,t-arree,mayrnt,avrril,boaldyn,m-souree,j-souree,luanistyn,m-fouyir,j-fouyir,
mhouney,mnollick;jerrey-geuree,toshiaght-arree,mayrnt,averil,boaldyn,mean-souree,jerrey-souree,luanistyn,
mean-fouyir,jerrey-fouyir,mee houney,mee ny nollick;jan,fab,mar,afi,may,yun,yul,agu,sat,okt,nuw,dis;
janairu,faburairu,maris,afirilu,mayu,yuni,yuli,agusta,satumba,oktoba,nuwamba,disamba;जन,फर,मार्च,अप,मई,
जून,जुला,अग,सित,अकटू,नव,दिस;जनवरी,फरवरी,मार्च,अपरेल,मई,जून,जुलाई,अगस्त,सितमबर,अकटूबर,नवमबर,दिसमबर;jan,
feb,měr,apr,mej,jun,jul,awg,sep,okt,now,dec;januara,februara,měrca,apryla,meje,junija,julija,awgusta,
septembra,oktobra,nowembra,decembra;januar,februar,měrc,apryl,meja,junij,julij,awgust,september,oktober,
nowember,december;jan,fev,mas,avr,me,jen,jiy,out,sep,okt,nov,des;janvye,fevriye,mas,avril,me,jen,jiyè,
out,septanm,oktòb,novanm,desanm;հնվ,փտր,մար,ապր,մայ,հնս,հլս,օգս,սեպ,հոկ,նմբ,դեկ;հունվարի,փետրվարի,մարտի,
ապրիլի,մայիսի,հունիսի,հուլիսի,օգոստոսի,սեպտեմբերի,հոկտեմբերի,նոյեմբերի,դեկտեմբերի;հունվար,փետրվար,մարտ,
ապրիլ,մայիս,հունիս,հուլիս,օգոստոս,սեպտեմբեր,հոկտեմբեր,նոյեմբեր,դեկտեմբեր;jan,feb,mar,apr,mai,jun,jul,aug,
sep,oct,nov,dec;januario,februario,martio,april,maio,junio,julio,augusto,septembre,octobre,novembre,
decembre;jen,feb,maa,epr,mee,juu,jul,ọgọ,sep,ọkt,nov,dis;jenụwarị,febrụwarị,maachị,eprel,mee,juun,julaị,
ọgọọst,septemba,ọktoba,novemba,disemba;sñt,sñs,pan,qil,sup,iġñ,itc,tiñ,ami,sik,nip,siq;siqiññaatchiaq,
siqiññaasrugruk,paniqsiqsiivik,qilġich tatqiat,suppivik,iġñivik,itchavik,tiññivik,amiġaiqsivik,sikkuvik,
nippivik,siqiñġiḷaq;jan,feb,mar,apr,maí,jún,júl,ágú,sep,okt,nóv,des;janúar,febrúar,mars,apríl,maí,júní,
júlí,ágúst,september,október,nóvember,desember;ᔮᓄ,ᕕᕗ,ᒪᔅ,ᐃᐳ,ᒪᐃ,ᔪᓂ,ᔪᓚ,ᐊᒋ,ᓯᑎ,ᐊᑦ,ᓄᕕ,ᑎᓯ;ᔮᓄᐊᓕ,ᕕᕗᐊᓕ,ᒪᔅᓯ,ᐃᐳᓗ,ᒪᐃ,
ᔪᓂ,ᔪᓚᐃ,ᐊᒋᓯ,ᓯᑎᕙ,ᐊᑦᑐᕙ,ᓄᕕᕙ,ᑎᓯᕝᕙ;იან,თებ,მარ,აპრ,მაი,ივნ,ივლ,აგვ,სექ,ოქტ,ნოე,დეკ;იანვარი,თებერვალი,მარტი,
აპრილი,მაისი,ივნისი,ივლისი,აგვისტო,სექტემბერი,ოქტომბერი,ნოემბერი,დეკემბერი;yen,fur,meɣ,yeb,may,yun,yul,
ɣuc,cte,tub,wam,duj;yennayer,fuṛar,meɣres,yebrir,mayyu,yunyu,yulyu,ɣuct,ctembeṛ,tubeṛ,wambeṛ,dujembeṛ;
januaarip,februaarip,marsip,apriilip,maajip,juunip,juulip,aggustip,septembarip,oktobarip,novembarip,
decembarip;januaari,februaari,marsi,apriili,maaji,juuni,juuli,aggusti,septembari,oktobari,novembari,
decembari;១,២,៣,៤,៥,៦,៧,៨,៩,១០,១១,១២;មករា,កុម្ភៈ,មីនា,មេសា,ឧសភា,មិថុនា,កក្កដា,សីហា,កញ្ញា,តុលា,វិច្ឆិកា,
ធ្នូ;ಜನ,ಫೆಬ್ರ,ಮಾರ್ಚ್,ಏಪ್ರಿ,ಮೇ,ಜೂನ್,ಜುಲೈ,ಆ,ಸೆಪ್ಟೆಂ,ಅಕ್ಟೋ,ನವೆಂ,ಡಿಸೆಂ;ಜನವರಿ,ಫೆಬ್ರವರಿ,ಮಾರ್ಚ್,ಏಪ್ರಿಲ್,ಮೇ,ಜೂನ್,
ಜುಲೈ,ಆಗಸ್ಟ್,ಸೆಪ್ಟೆಂಬರ್,ಅಕ್ಟೋಬರ್,ನವೆಂಬರ್,ಡಿಸೆಂಬರ್;जानेवारी,फेब्रुवारी,मार्च,एप्रिल,मे,जून,जुलै,ओगस्ट,
सेप्टेंबर,ओक्टोबर,नोव्हेंबर,डिसेंबर;جنؤری,فرؤری,مارٕچ,اپریل,میٔ,جوٗن,جوٗلایی,اگست,ستمبر,اکتوٗبر,نومبر,
دسمبر;जनवरी,फ़रवरी,मार्च,अप्रेल,मई,जून,जुलाई,अगस्त,सितम्बर,अक्टूबर,नवम्बर,दिसम्बर;çil,sib,ada,nîs,gul,
hez,tîr,teb,îlo,cot,mij,kan;çile,sibat,adar,nîsan,gulan,hezîran,tîrmeh,tebax,îlon,cotmeh,mijdar,kanûn;
gen,hwe,meu,ebr,me,met,gor,est,gwn,hed,du,kev;mis genver,mis hwevrer,mis meurth,mis ebrel,mis me,
mis metheven,mis gortheren,mis est,mis gwynngala,mis hedra,mis du,mis kevardhu;jan,feb,mäe,abr,mee,jun,
jul,aug,sep,okt,nov,dez;januar,februar,mäerz,abrëll,mee,juni,juli,august,september,oktober,november,
dezember;jan,feb,mar,apu,maa,juu,jul,agu,seb,oki,nov,des;janwaliyo,febwaliyo,marisi,apuli,maayi,juuni,
julaayi,agusito,sebuttemba,okitobba,novemba,desemba;jan,fib,mie,epr,mei,jun,jul,aug,sep,okt,nov,des;
jannewarie,fibberwarie,miert,eprèl,meij,junie,julie,augustus,september,oktober,november,desember;zen,fev,
mar,arv,maz,zûg,lûg,ago,set,ött,nov,dix;zenâ,fevrâ,marzo,avrî,mazzo,zûgno,lûggio,agosto,settembre,
ottobre,novembre,dixembre;yan,fbl,msi,apl,mai,yun,yul,agt,stb,ɔtb,nvb,dsb;sánzá ya yambo,sánzá ya míbalé,
sánzá ya mísáto,sánzá ya mínei,sánzá ya mítáno,sánzá ya motóbá,sánzá ya nsambo,sánzá ya mwambe,
sánzá ya libwa,sánzá ya zómi,sánzá ya zómi na mɔ̌kɔ́,sánzá ya zómi na míbalé;ມກ,ກພ,ມນ,ມສ,ພພ,ມິຖ,ກລ,ສຫ,ກຍ,
ຕລ,ພຈ,ທວ;ມັງກອນ,ກຸມພາ,ມີນາ,ເມສາ,ພຶດສະພາ,ມິຖຸນາ,ກໍລະກົດ,ສິງຫາ,ກັນຍາ,ຕຸລາ,ພະຈິກ,ທັນວາ;一,二,三,四,五,六,七,八,九,十,
十一,十二;बैसाख,जेठ,अषाढ़,सावोन,भादो,आसिन,कातिक,अगहन,पूस,माघ,फागुन,चैति;zan,fev,mar,avr,me,zin,zil,out,sep,
okt,nov,des;zanvie,fevriye,mars,avril,me,zin,zilye,out,septam,oktob,novam,desam;jan,feb,mar,apr,mey,jon,
jol,aog,sep,okt,nov,des;janoary,febroary,martsa,aprily,mey,jona,jolay,aogositra,septambra,oktobra,
novambra,desambra;шрк,пгж,ӱрн,вшр,ага,пдш,срм,срл,идм,шыж,клм,тел;шорыкйол,пургыж,ӱярня,вӱдшор,ага,
пеледыш,сӱрем,сорла,идым,шыжа,кылме,теле;kohi,hui,pou,pae,hara,pipi,hōngoi,here,mahu,whi-nu,whi-ra,haki;
kohi-tātea,hui-tanguru,poutū-te-rangi,paenga-whāwhā,haratua,pipiri,hōngoingoi,here-turi-kōkā,mahuru,
whiringa-ā-nuku,whiringa-ā-rangi,hakihea;siakwa kati,kuswa kati,kakamuk kati,lî wainhka kati,
lih mairin kati,lî kati,pastara kati,sikla kati,wîs kati,waupasa kati,yahbra kati,trisu kati;ark,thang,
the,jang,aru,vos,jak,pai,chi,phe,phai,mati;arkoi,thangthang,there,jangmi,aru,vosik,jakhong,paipai,chiti,
phere,phaikuni,matijong;јан,фев,мар,апр,мај,јун,јул,авг,сеп,окт,ное,дек;јануари,февруари,март,април,мај,
јуни,јули,август,септември,октомври,ноември,декември;ജനു,ഫെബ്രു,മാർ,ഏപ്രി,മേയ്,ജൂൺ,ജൂലൈ,ഓഗ,സെപ്റ്റം,
ഒക്ടോ,നവം,ഡിസം;ജനുവരി,ഫെബ്രുവരി,മാർച്ച്,ഏപ്രിൽ,മേയ്,ജൂൺ,ജൂലൈ,ഓഗസ്റ്റ്,സെപ്റ്റംബർ,ഒക്‌ടോബർ,നവംബർ,ഡിസംബർ;
1-р сар,2-р сар,3-р сар,4-р сар,5-р сар,6-р сар,7-р сар,8-р сар,9-р сар,10-р сар,11-р сар,12-р сар;
нэгдүгээр сар,хоёрдугаар сар,гуравдугаар сар,дөрөвдүгээр сар,тавдугаар сар,зургадугаар сар,долдугаар сар,
наймдугаар сар,есдүгээр сар,аравдугаар сар,арван нэгдүгээр сар,арван хоёрдугаар сар;জান,ফেব,মার,এপ্রি,মে,
জুন,জুল,আগ,সেপ,ওক্ত,নবে,ডিস;জানুৱারি,ফেব্রুৱারি,মার্চ,এপ্রিল,মে,জুন,জুলাই,আগষ্ট,সেপ্তেম্বর,ওক্তোবর,
নবেম্বর,ডিসেম্বর;ဂျာန်,ဝှေဝ်,မာတ်,အေ,မေ,ဂျုန်,ဂျူ,အဝ်,သိပ်,အံက်,နဝ်,ဒဳ;ဂျာန်နျူအာရဳ,ဝှေဝ်ဗြူအာရဳ,မာတ်ချ်,
အေပြေယ်လ်,မေ,ဂျုန်,ဂျူလာၚ်,အဝ်ဂါတ်,သိပ်တီဗာ,အံက်တဝ်ဗာ,နဝ်ဝါမ်ဗာ,ဒဳသီဗာ;जाने,फेब्रु,मार्च,एप्रि,मे,जून,
जुलै,ऑग,सप्टें,ऑक्टो,नोव्हें,डिसें;जानेवारी,फेब्रुवारी,मार्च,एप्रिल,मे,जून,जुलै,ऑगस्ट,सप्टेंबर,ऑक्टोबर,
नोव्हेंबर,डिसेंबर;jan,fra,mar,apr,mej,ġun,lul,aww,set,ott,nov,diċ;jannar,frar,marzu,april,mejju,ġunju,
lulju,awwissu,settembru,ottubru,novembru,diċembru;ဇန်,ဖေ,မတ်,ဧပြီ,မေ,ဇွန်,ဇူ,ဩ,စက်,အောက်,နို,ဒီ;ဇန်နဝါရီ,
ဖေဖော်ဝါရီ,မတ်,ဧပြီ,မေ,ဇွန်,ဇူလိုင်,ဩဂုတ်,စက်တင်ဘာ,အောက်တိုဘာ,နိုဝင်ဘာ,ဒီဇင်ဘာ;1g,2g,3g,4g,5g,6g,7g,8g,
9g,10g,11g,12g;1goe̍h,2goe̍h,3goe̍h,4goe̍h,5goe̍h,6goe̍h,7goe̍h,8goe̍h,9goe̍h,10goe̍h,11goe̍h,12goe̍h;
jannuaar,feberwaar,märz,april,mai,juni,juli,august,september,oktober,november,dezember;जन,फेब्रुअरी,
मार्च,अप्रिल,मे,जुन,जुलाई,अगस्ट,सेप्टेम्बर,अक्टोबर,नोभेम्बर,डिसेम्बर;जनवरी,फेब्रुअरी,मार्च,अप्रिल,मे,जुन,
जुलाई,अगस्ट,सेप्टेम्बर,अक्टोबर,नोभेम्बर,डिसेम्बर;ian,fep,mas,ape,me,iun,iul,aok,sep,oke,nov,tes;ianuali,
fepuali,masi,apelila,me,iuni,iulai,aokuso,sepetema,oketopa,novema,tesemo;jan,feb,mat,apr,mey,jun,jul,arh,
sep,okt,usi,dis;janabari,ufeberbari,umatjhi,u-apreli,meyi,juni,julayi,arhostosi,septemba,oktoba,
usinyikhaba,disemba;jan,feb,mat,apr,mei,jun,jul,ago,set,okt,nof,dis;janaware,febereware,matšhe,aprele,
mei,june,julae,agostose,setemere,oktobere,nofemere,disemere;gen,febr,març,abr,mai,junh,jul,ago,set,oct,
nov,dec;de genièr,de febrièr,de març,d’abril,de mai,de junh,de julhet,d’agost,de setembre,d’octòbre,
de novembre,de decembre;genièr,febrièr,març,abril,mai,junh,julhet,agost,setembre,octòbre,novembre,
decembre;ama,gur,bit,elb,cam,wax,ado,hag,ful,onk,sad,mud;amajjii,guraandhala,bitooteessa,elba,caamsa,
waxabajjii,adooleessa,hagayya,fuulbana,onkololeessa,sadaasa,muddee;ଜାନୁଆରୀ,ଫେବୃଆରୀ,ମାର୍ଚ୍ଚ,ଅପ୍ରେଲ,ମଇ,ଜୁନ,
ଜୁଲାଇ,ଅଗଷ୍ଟ,ସେପ୍ଟେମ୍ବର,ଅକ୍ଟୋବର,ନଭେମ୍ବର,ଡିସେମ୍ବର;январы,февралы,мартъийы,апрелы,майы,июны,июлы,августы,
сентябры,октябры,ноябры,декабры;январь,февраль,мартъи,апрель,май,июнь,июль,август,сентябрь,октябрь,
ноябрь,декабрь;ਜਨ,ਫ਼ਰ,ਮਾਰਚ,ਅਪ੍ਰੈ,ਮਈ,ਜੂਨ,ਜੁਲਾ,ਅਗ,ਸਤੰ,ਅਕਤੂ,ਨਵੰ,ਦਸੰ;ਜਨਵਰੀ,ਫ਼ਰਵਰੀ,ਮਾਰਚ,ਅਪ੍ਰੈਲ,ਮਈ,ਜੂਨ,ਜੁਲਾਈ,
ਅਗਸਤ,ਸਤੰਬਰ,ਅਕਤੂਬਰ,ਨਵੰਬਰ,ਦਸੰਬਰ;جنوري,فروري,مارچ,اپريل,مٓی,جون,جولاي,اگست,ستمبر,اكتوبر,نومبر,دسمبر;yan,feb,
mar,apr,mei,yün,yül,oug,sèp,okt,nov,des;yanüari,febrüari,mart,aprel,mei,yüni,yüli,ougùstùs,sèptèmber,
oktober,novèmber,desèmber;جنوري,فبروري,مارچ,اپریل,مۍ,جون,جولای,اګست,سپتمبر,اکتوبر,نومبر,دسمبر;ini,phi,
mar,awr,may,hun,hul,agu,sip,ukt,nuw,tis;iniru,phiwriru,marsu,awril,mayu,huniyu,huliyu,agustu,siptiyimri,
uktuwri,nuwiyimri,tisiyimri;जन,फर,मार्च,अप्रै,मई,जून,जुल,अग,सित,अक्टू,नव,दिस;yen,feb,mar,yeb,may,yun,yul,
ɣuc,cut,kṭu,nuv,duj;yennayer,febrayer,mares,yebril,mayyu,yunyu,yulyuz,ɣuct,cutenber,kṭuber,nuvember,
dujember;mut,gas,wer,mat,gic,kam,nya,kan,nze,ukw,ugu,uku;mutarama,gashyantare,werurwe,mata,gicuransi,
kamena,nyakanga,kanama,nzeli,ukwakira,ugushyingo,ukuboza;тохс,олун,кул,муус,ыам,бэс,от,атыр,бал,алт,сэт,
ахс;тохсунньу,олунньу,кулун тутар,муус устар,ыам ыйын,бэс ыйын,от ыйын,атырдьах ыйын,балаҕан ыйын,
алтынньы,сэтинньи,ахсынньы;тохсунньу,олунньу,кулун тутар,муус устар,ыам ыйа,бэс ыйа,от ыйа,атырдьах ыйа,
балаҕан ыйа,алтынньы,сэтинньи,ахсынньы;जनवरी,फरवरी,मार्च,अप्रेल,मई,जुन,जुलाई,अगस्त,सितम्बर,अखथबर,नवम्बर,
दिसम्बर;ghe,fre,mar,abr,maj,làm,arg,aus,cab,lad,onn,nad;ghennàrgiu,freàrgiu,martzu,abrile,maju,làmpadas,
argiolas//trìulas,austu,cabudanni,santugaine//ladàmine,onniasantu//santandria,nadale//idas;جنوري,فبروري,
مارچ,اپريل,مي,جون,جولاءِ,آگسٽ,سيپٽيمبر,آڪٽوبر,نومبر,ڊسمبر;जनवरी,फबरवरी,मार्चि,अप्रेल,मे,जूनि,जूलाइ,
आगस्टु,सेप्टेंबरू,आक्टूबरू,नवंबरू,ॾिसंबरू;ođđj,guov,njuk,cuoŋ,mies,geas,suoi,borg,čakč,golg,skáb,juov;
ođđajagemánnu,guovvamánnu,njukčamánnu,cuoŋománnu,miessemánnu,geassemánnu,suoidnemánnu,borgemánnu,
čakčamánnu,golggotmánnu,skábmamánnu,juovlamánnu;sau,vas,kuo,bal,geg,bėr,lëp,rgp,sie,spa,lap,grd;sausė,
vasarė,kuova,balondė,gegožės,bėrželė,lëpas,rogpjūtė,siejės,spalė,lapkrėstė,grůdė;လိူၼ်ၵမ်,လိူၼ်သၢမ်,
လိူၼ်သီႇ,လိူၼ်ႁႃႈ,လိူၼ်ႁူၵ်း,လိူၼ်ၸဵတ်း,လိူၼ်ပႅတ်ႇ,လိူၼ်ၵဝ်ႈ,လိူၼ်သိပ်း,လိူၼ်သိပ်းဢဵတ်း,လိူၼ်သိပ်းသွင်,
လိူၼ်ၸဵင်;kwe,tsi,sqe,éwt,ell,tsp,tqw,ct̓é,qel,wél,u7l,tet;pellkwet̓min,pelctsipwen̓ten,pellsqépts,
peslléwten,pell7ell7é7llqten,pelltspéntsk,pelltqwelq̓wél̓t,pellct̓éxel̓cten,pesqelqlélten,pesllwélsten,
pellc7ell7é7llcwten̓,pelltetétq̓em;ජන,පෙබ,මාර්,අප්රි,මැයි,ජූනි,ජූලි,අගෝ,සැප්,ඔක්,නෙවැ,දෙසැ;ජනවාරි,
පෙබරවාරි,මාර්තු,අප්රේල්,මැයි,ජූනි,ජූලි,අගෝස්තු,සැප්තැම්බර්,ඔක්තෝබර්,නොවැම්බර්,දෙසැම්බර්;ian,fep,mat,ape,
me,iun,iul,aug,set,oke,nov,tes;ianuari,fepuari,mati,aperila,me,iuni,iulai,auguso,setema,oketopa,novema,
tesema;kob,lab,sad,afr,sha,lix,tod,sid,sag,tob,kit,lit;bisha koobaad,bisha labaad,bisha saddexaad,
bisha afraad,bisha shanaad,bisha lixaad,bisha todobaad,bisha sideedaad,bisha sagaalaad,bisha tobnaad,
bisha kow iyo tobnaad,bisha laba iyo tobnaad;jan,shk,mar,pri,maj,qer,kor,gsh,sht,tet,nën,dhj;janar,
shkurt,mars,prill,maj,qershor,korrik,gusht,shtator,tetor,nëntor,dhjetor;bhi,van,vul,mab,khk,nhl,kho,ngc,
nyo,imp,lwe,ngo;bhimbidvwane,indlovane,indlovulenkhulu,mabasa,inkhwenkhweti,inhlaba,kholwane,ingci,
inyoni,impala,lweti,ingongoni;phe,hla,tlh,mme,mot,jan,upu,pha,leo,mph,pud,tsh;pherekgong,hlakola,
tlhakubele,mmese,motsheanong,phupjane,phupu,phato,leotse,mphalane,pudungwana,tshitwe;jan,feb,mac,apr,mei,
jun,jul,ago,sep,okt,nov,des;januari,februari,machi,aprili,mei,juni,julai,agosti,septemba,oktoba,novemba,
desemba;܏ܟܢ ܏ܒ,ܫܒܛ,ܐܕܪ,ܢܝܣܢ,ܐܝܪ,ܚܙܝܪܢ,ܬܡܘܙ,ܐܒ,ܐܝܠܘܠ,܏ܬܫ ܏ܐ,܏ܬܫ ܏ܒ,܏ܟܢ ܏ܐ;ܟܢܘܢ ܐܚܪܝܐ,ܫܒܛ,ܐܕܪ,ܢܝܣܢ,ܐܝܪ,
ܚܙܝܪܢ,ܬܡܘܙ,ܐܒ,ܐܝܠܘܠ,ܬܫܪܝܢ ܩܕܡܝܐ,ܬܫܪܝܢ ܐܚܪܝܐ,ܟܢܘܢ ܩܕܡܝܐ;sty,lut,mar,kwi,moj,czy,lip,sie,wrz,paź,lis,gru;
stycznia,lutego,marca,kwietnia,moja,czyrwca,lipca,sierpnia,września,października,listopada,grudnia;
styczyń,luty,marzec,kwieciyń,moj,czyrwiec,lipiec,sierpiyń,wrzesiyń,październik,listopad,grudziyń;ஜன,பிப்,
மார்,ஏப்,மே,ஜூன்,ஜூலை,ஆக,செப்,அக்,நவ,டிச;ஜனவரி,பிப்ரவரி,மார்ச்,ஏப்ரல்,மே,ஜூன்,ஜூலை,ஆகஸ்ட்,செப்டம்பர்,
அக்டோபர்,நவம்பர்,டிசம்பர்;ಜ,ಫೆ,ಮಾ,ಏ,ಮೇ,ಜೂ,ಜು,ಆ,ಸೆ,ಅ,ನ,ಡಿ;ಜನವರಿ,ಫೆಬ್ರುವರಿ,ಮಾರ್ಚ್,ಏಪ್ರಿಲ್‌‌,ಮೇ,ಜೂನ್,ಜುಲೈ,
ಆಗಸ್ಟ್,ಸೆಪ್ಟೆಂಬರ್‌,ಅಕ್ಟೋಬರ್,ನವೆಂಬರ್,ಡಿಸೆಂಬರ್;జన,ఫిబ్ర,మార్చి,ఏప్రి,మే,జూన్,జులై,ఆగ,సెప్టెం,అక్టో,నవం,
డిసెం;జనవరి,ఫిబ్రవరి,మార్చి,ఏప్రిల్,మే,జూన్,జులై,ఆగస్టు,సెప్టెంబర్,అక్టోబర్,నవంబర్,డిసెంబర్;ጥሪ,ለካቲ,መጋቢ,
ሚያዝ,ግንቦ,ሰነ,ሓምለ,ነሓሰ,መስከ,ጥቅም,ሕዳር,ታሕሳ;ጥሪ,ለካቲት,መጋቢት,ሚያዝያ,ግንቦት,ሰነ,ሓምለ,ነሓሰ,መስከረም,ጥቅምቲ,ሕዳር,ታሕሳስ;ýan,few,mar,apr,
maý,iýn,iýl,awg,sen,okt,noý,dek;ýanwar,fewral,mart,aprel,maý,iýun,iýul,awgust,sentýabr,oktýabr,noýabr,
dekabr;ene,peb,mar,abr,may,hun,hul,ago,sep,okt,nob,dis;enero,pebrero,marso,abril,mayo,hunyo,hulyo,agosto,
septiyembre,oktubre,nobiyembre,disyembre;fer,tlh,mop,mor,mot,see,phu,pha,lwe,dip,ngw,sed;ferikgong,
tlhakole,mopitlwe,moranang,motsheganong,seetebosigo,phukwi,phatwe,lwetse,diphalane,ngwanatsele,
sedimonthole;sān,fēp,maʻa,ʻepe,mē,sun,siu,ʻaok,sep,ʻoka,nōv,tīs;sānuali,fēpueli,maʻasi,ʻepeleli,mē,sune,
siulai,ʻaokosi,sepitema,ʻokatopa,nōvema,tīsema;jan,feb,mas,epr,me,jun,jul,oga,sep,okt,nov,des;janueri,
februeri,mas,epril,me,jun,julai,ogas,septemba,oktoba,novemba,desemba;sun,yan,kul,dzi,mud,kho,maw,mha,ndz,
nhl,huk,n'w;sunguti,nyenyenyani,nyenyankulu,dzivamisoko,mudyaxihi,khotavuxika,mawuwani,mhawuri,ndzhati,
nhlangula,hukuri,n'wendzamhala;гыйн,фев,мар,апр,май,июнь,июль,авг,сент,окт,нояб,дек;гыйнвар,февраль,март,
апрель,май,июнь,июль,август,сентябрь,октябрь,ноябрь,декабрь;ğın,fiw,mar,apr,may,yün,yül,awg,sin,ükt,noy,
dik;ğınwar,fiwral',mart,april,may,yün,yül,awgust,sintebír,üktebír,noyebír,dikebír;يانۋار,فېۋرال,مارت,
ئاپرېل,ماي,ئىيۇن,ئىيۇل,ئاۋغۇست,سېنتەبىر,ئۆكتەبىر,نويابىر,دېكابىر;eni,chk,xam,kwe,tai,nip,lai,win,tah,puk,
kun,mux;enikwsi,chkwali,xamokhwite,kwetayoxe,tainipen,kichinipen,lainipen,winaminke,kichitahkok,puksit,
wini,muxkotae;جنوری,فروری,مارچ,اپریل,مئی,جون,جولائی,اگست,ستمبر,اکتوبر,نومبر,دسمبر;yan,fev,mar,apr,may,
iyn,iyl,avg,sen,okt,noy,dek;yanvar,fevral,mart,aprel,may,iyun,iyul,avgust,sentabr,oktabr,noyabr,dekabr;
январ,феврал,март,апрел,май,июн,июл,август,сентябр,октябр,ноябр,декабр;pha,luh,fam,lam,shu,lwi,lwa,ngu,
khu,tsh,ḽar,nye;phando,luhuhi,ṱhafamuhwe,lambamai,shundunthule,fulwi,fulwana,ṱhangule,khubvumedzi,
tshimedzi,ḽara,nyendavhusiku;dja,fev,mås,avr,may,djn,djl,awo,set,oct,nôv,dec;di djanvî,di fevrî,di måss,
d’ avri,di may,di djun,di djulete,d’ awousse,di setimbe,d’ octôbe,di nôvimbe,di decimbe;djanvî,fevrî,
måss,avri,may,djun,djulete,awousse,setimbe,octôbe,nôvimbe,decimbe;jen,hor,mär,abr,mei,brá,hei,öig,her,
wím,win,chr;jenner,hornig,märze,abrille,meije,bráčet,heiwet,öigšte,herbštmánet,wímánet,wintermánet,
chrištmánet;san,fee,mar,awr,me,suw,sul,uut,sep,okt,now,des;sanwiy'e,feebriy'e,mars,awril,me,suwen,sulet,
uut,septaambar,oktoobar,nowaambar,desaambar;mqu,mdu,kwi,tsh,can,sil,kha,thu,msi,dwa,nka,mng;eyomqungu,
eyomdumba,eyokwindla,utshazimpuzi,ucanzibe,eyesilimela,eyekhala,eyethupa,eyomsintsi,eyedwarha,eyenkanga,
eyomnga;יאַנ,פֿעב,מאַר,אַפּר,מײַ,יונ,יול,אױג,סעפּ,אָקט,נאָװ,דעצ;יאַנואַר,פֿעברואַר,מערץ,אַפּריל,מיי,יוני,
יולי,אויגוסט,סעפּטעמבער,אקטאבער,נאוועמבער,דעצעמבער;ṣẹ́rẹ́,èrèlè,ẹrẹ̀nà,ìgbé,ẹ̀bibi,òkúdu,agẹmọ,ògún,
owewe,ọ̀wàrà,bélú,ọ̀pẹ̀;oṣù ṣẹ́rẹ́,oṣù èrèlè,oṣù ẹrẹ̀nà,oṣù ìgbé,oṣù ẹ̀bibi,oṣù òkúdu,oṣù agẹmọ,oṣù ògún,
oṣù owewe,oṣù ọ̀wàrà,oṣù bélú,oṣù ọ̀pẹ̀;jen,feb,mas,epr,mei,jun,jul,ögu,sep,ökt,nöw,dis;jenuari,febuari,
mas,epril,mei,jun,julai,ögus,septemba,öktoba,nöwemba,diksemba;jan,feb,mas,eph,mey,jun,jul,aga,sep,okt,
nov,dis;januwari,februwari,mashi,ephreli,meyi,juni,julayi,agasti,septhemba,okthoba,novemba,disemba;jan,
feb,mars,april,maj,juni,juli,aug,sept,okt,nov,des;янв,февр,марта,апр,мая,июня,июля,авг,сент,окт,нояб,дек
"""
"""Languages, the most common first; each gives its months. Folded to small letters, without dots.

Source: glibc 2.36, localedata/locales: abmon, ab_alt_mon, mon and alt_mon of LC_TIME.
"""


@lru_cache(maxsize=256)
def month_number(word: str) -> int | None:
    """1 to 12 for `Apr`, `févr.`, `авг`, `Thg 4`, `4月`, `11월`; None for any other word.

    A name that means different months in different languages is taken for the most common language's: see `months_of`.
    """
    name = _folded(word)
    if (number := _ENGLISH.get(name)) is not None:
        return number
    if name[-1:] in "月월" and (digits := name[:-1].strip()).isdecimal():
        return int(digits) if 1 <= int(digits) <= 12 else None
    readings = _readings().get(name)
    return readings[0][1] if readings else None


@lru_cache(maxsize=256)
def is_english(word: str) -> bool:
    """Whether a month name is the English one, which most logs have."""
    return word.casefold() in _ENGLISH


def months_of(word: str, seen: Iterable[str] = ()) -> tuple[int, ...]:
    """Every month that a name can mean, the likeliest first, in the languages that know the other names seen beside it."""
    readings = _readings().get(_folded(word), ())
    languages = {language for language, _ in readings}
    for other in seen:
        known = {language for language, _ in _readings().get(_folded(other), ())}
        languages = languages & known or languages
    return tuple(dict.fromkeys(month for language, month in readings if language in languages))


def _folded(word: str) -> str:
    return word.casefold().replace(".", "").replace("‍", "").strip()


@lru_cache(maxsize=1)
def _readings() -> dict[str, tuple[tuple[int, int], ...]]:
    """Name to (language, month)."""
    found: dict[str, list[tuple[int, int]]] = {}
    for language, names in enumerate(_NAMES.replace("\n", "").split(";")):
        for month, name in enumerate(names.split(","), 1):
            found.setdefault(name, []).append((language, month))
    return {name: tuple(readings) for name, readings in found.items()}
